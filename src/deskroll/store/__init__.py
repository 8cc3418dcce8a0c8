"""Where episodes are written so that nothing is lost: `RunStore` and `AttemptWriter` write, `Run` reads.

The order that holds everything together: an attempt's files are durable, then its manifest (`episode.json`), then the
`sealed` record in the journal. Whatever is killed in between, an outcome that the journal knows is whole;
only one whose worker was lost (failure class `worker`) has no manifest.

paths.py     the run tree, drawn             storage.py   a folder, wherever it is: local.py, objects.py
journal.py   the records, and lines          index.py     what they say, folded
chain.py     a checksum on each line         mending.py   a damaged journal, put right; evidence.py: by what
writer.py    one attempt's folder            manifest.py  what its episode.json and tokens.npz hold
commit.py    attempts made durable together  attempt.py   an attempt's folder, read
run.py       the coordinator's side          lock.py      who runs it         info.py   run.json
pump.py      lines on their way to the disk  sink.py, sink_objects.py          results.py
reader.py    a run, read                     spool.py     attempts on their way to an object store
finding.py   an episode by what people name
"""

from deskroll.store.attempt import AttemptReader
from deskroll.store.index import Index
from deskroll.store.info import RunInfo, config_digest
from deskroll.store.journal import CloseReason
from deskroll.store.lock import Holder
from deskroll.store.reader import Run, find_run, list_runs
from deskroll.store.results import Result
from deskroll.store.run import RunStore
from deskroll.store.storage import Storage, join
from deskroll.store.writer import AttemptWriter

__all__ = [
    "AttemptReader",
    "AttemptWriter",
    "CloseReason",
    "Holder",
    "Index",
    "Result",
    "Run",
    "RunInfo",
    "RunStore",
    "Storage",
    "config_digest",
    "find_run",
    "join",
    "list_runs",
]
