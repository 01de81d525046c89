"""Who is compared; each arm is a process that does one run and prints what came of it."""
