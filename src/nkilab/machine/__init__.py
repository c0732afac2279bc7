"""The chips: one row each, every number with its source."""

from .chips import MACHINES as MACHINES
from .chips import chip_named as chip_named
from .file import MachineFile as MachineFile
from .file import machine_named as machine_named
from .model import FREE as FREE
from .model import Fact as Fact
from .model import Machine as Machine
from .topology import LINKS as LINKS
from .topology import Span as Span
from .topology import Topology as Topology
from .topology import topology_of as topology_of
