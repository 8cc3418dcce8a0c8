"""Machines with a screen: what a desktop is, the guest that runs inside it, and the providers that boot it."""
