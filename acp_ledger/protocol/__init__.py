"""The protocol without I/O: bytes in, facts out. Nothing here waits, logs, opens or sends."""
