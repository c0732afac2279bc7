"""What host scripts of this ecosystem import besides NKI."""
