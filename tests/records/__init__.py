"""The log of one partition: batches of other people's clients, crashes at every byte, and a model beside it."""
