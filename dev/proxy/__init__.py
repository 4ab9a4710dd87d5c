"""A proxy between Kafka's clients and a broker, which delays, drops and answers as a test asks."""
