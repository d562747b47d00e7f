"""What runs underneath a kind of device: one narrow interface, one folder for each implementation."""
