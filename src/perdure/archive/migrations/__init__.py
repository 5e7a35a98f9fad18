"""The steps that bring an archive to its newest form; see `perdure.archive.migrating`."""
