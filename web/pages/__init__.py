"""The views as pages of NiceGUI. Nothing is decided here."""
