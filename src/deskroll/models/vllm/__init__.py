"""vLLM: servers that are processes of this machine, started, watched and ended as whole families."""
