"""A stored run in other programs' layouts. Reads through the store, and never writes into the run.

output.py    the folder that is written: refused, gone on with, finished        episodes.py   which episodes there are
osworld.py   OSWorld's result tree      tables.py   Parquet files      films.py   a video of each episode's screens
pictures.py  stored screens, opened with care                          difference.py   two screens, compared
"""

from deskroll.export.episodes import Chosen, Exported, export_folders
from deskroll.export.output import Output

__all__ = ["Chosen", "Exported", "Output", "export_folders"]
