"""A cluster in virtual time: the live cores of services and nodes, clients, and the bus between them."""
