"""What a pipeline keeps below its state folder, whoever reads or writes it."""
