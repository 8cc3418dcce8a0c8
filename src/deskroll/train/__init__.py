"""Training: baseline, steps and evaluations on one runtime, and the trainers that take the steps."""
