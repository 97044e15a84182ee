"""The page that shows the network: `calicoctl web`, and `calico-web` in a cluster. Read-only."""
