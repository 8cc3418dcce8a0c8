"""Runs episodes: plan, permits, retries, and the one loop. What it needs from below comes in by name."""
