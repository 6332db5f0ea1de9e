"""How fast a federated round is, against the plain way and against what the machine can do."""
