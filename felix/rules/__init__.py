"""What a node filters: a model of rules and chains first, text for a back end second."""
