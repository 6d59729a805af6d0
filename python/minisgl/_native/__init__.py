"""The engine, built by scripts/native.sh: for CPUs, and in one more module for GPUs. The stub beside them says what they have."""
