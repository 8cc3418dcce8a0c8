"""OSWorld's own tasks, on real desktops."""
