"""The engine, built by scripts/native.sh. The stub beside it says what it has."""
