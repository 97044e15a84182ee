"""What each view shows, as plain values made of the facts. Pure."""
