"""Node start-up and supervision: who this node is, and that its agents run."""
