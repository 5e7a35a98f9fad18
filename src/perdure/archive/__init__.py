"""The archive: what sessions have said and done, for as long as anybody wants to know it, in an SQL database.

store       what is kept and how it is read: `Archive`
writing     what each way of writing does, in one transaction
values      what it answers with
place       where it is, by settings and environment
tables      the tables, and the engine that reaches them
migrating   the database brought to the form that this version knows
migrations  the steps of that, one file a step

Sessions hand over by themselves (`perdure.rules.archiving`), and go on when the archive is down.
"""

from perdure.archive.place import archive_from_environment, archive_url, default_home
from perdure.archive.store import Archive
from perdure.archive.values import Checkpoint, Forgotten

__all__ = ["Archive", "Checkpoint", "Forgotten", "archive_from_environment", "archive_url", "default_home"]
