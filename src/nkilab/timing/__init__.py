"""When a program happens: engines, DMA queues, signals, events."""

from .clock import BEGIN as BEGIN
from .clock import ended as ended
from .clock import latency_ns as latency_ns
from .clock import opened as opened
from .clock import simulate as simulate
from .events import MODEL_VERSION as MODEL_VERSION
from .state import FOREVER as FOREVER
from .state import NOBODY as NOBODY
from .timeline import REASON_TEXTS as REASON_TEXTS
from .timeline import REASONS as REASONS
from .timeline import Timeline as Timeline
