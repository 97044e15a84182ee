#!/bin/sh
# The name under which manifests of every generation start the installer; an image has it as
# /install-cni.sh and /opt/cni/bin/install. Variables and mounts: docs/install-cni.md.
exec install-cni "$@"
