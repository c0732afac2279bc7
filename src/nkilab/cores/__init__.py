"""Several programs of one launch: on which core an instance runs, whose turn it is, how cores meet."""

from .common_clock import neighbours as neighbours
from .common_clock import signature as signature
from .common_clock import simulate_together as simulate_together
from .equal_ranks import are_alike as are_alike
from .equal_ranks import as_each_rank as as_each_rank
from .equal_ranks import of_all_ranks as of_all_ranks
from .grid import ProgramGrid as ProgramGrid
from .grid import instances_of as instances_of
from .rendezvous import Rendezvous as Rendezvous
from .rendezvous import joined as joined
from .rendezvous import note_rendezvous as note_rendezvous
from .schedule import Schedule as Schedule
from .schedule import run_in_turns as run_in_turns
