"""Files, processes, threads and optional packages."""
