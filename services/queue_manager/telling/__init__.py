"""What others are told: nodes which group to pull from, gateways how long a wait is, operators what stands where."""
