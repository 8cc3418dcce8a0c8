"""Files that are copied into desktops and run there by the desktop's own Python; the host imports none of them."""
