"""Where tiles lie and who waits for whom: lifetimes, rotation, addresses, spills, dependence edges."""

from .addresses import plan as plan
from .edges import DEPENDENCES as DEPENDENCES
from .edges import Dependence as Dependence
from .edges import Waits as Waits
from .edges import dependences as dependences
from .plan import Finding as Finding
from .plan import Placements as Placements
from .plan import Plan as Plan
from .plan import Transfer as Transfer
