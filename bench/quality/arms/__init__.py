"""Who is compared; each arm is a process that does some runs and prints what came of them."""
