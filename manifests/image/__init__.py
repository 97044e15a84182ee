"""Container images made of Debian packages and wheels: no base image, no daemon, no root."""
