"""`python -m cni.install` is `install-cni`."""

from cni.install.main import main

main()
