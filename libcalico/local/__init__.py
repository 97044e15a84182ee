"""How the processes of one node talk: frames on a unix socket, and the messages in them."""
