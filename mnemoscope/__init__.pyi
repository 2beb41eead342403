"""What type checkers see of the public names; `__init__.py` loads them when first used."""

from mnemoscope.core.errors import UserError as UserError
from mnemoscope.exchange.model_files import load_model as load_model
from mnemoscope.models import Edit as Edit
from mnemoscope.models import FactoredMatrix as FactoredMatrix
from mnemoscope.models import HookedModel as HookedModel
from mnemoscope.models import Init as Init
from mnemoscope.models import Layer as Layer
from mnemoscope.models import Model as Model
from mnemoscope.models import ModelConfig as ModelConfig
from mnemoscope.models import Stack as Stack
from mnemoscope.models import Transformer as Transformer
from mnemoscope.models import add_to_site as add_to_site
from mnemoscope.models import bind as bind
from mnemoscope.models import draw_by_shape as draw_by_shape
from mnemoscope.models import force_pattern as force_pattern
from mnemoscope.models import knock_out_head as knock_out_head
from mnemoscope.models import knock_out_mlp as knock_out_mlp
from mnemoscope.models import patch_site as patch_site
from mnemoscope.models import patch_sites as patch_sites
from mnemoscope.models import replace_site as replace_site
from mnemoscope.store import Store as Store
from mnemoscope.tasks import Bigrams as Bigrams
from mnemoscope.tasks import Cycle as Cycle
from mnemoscope.tasks import Example as Example
from mnemoscope.tasks import Facts as Facts
from mnemoscope.tasks import Hops as Hops
from mnemoscope.tasks import Permutation as Permutation
from mnemoscope.tasks import Task as Task
from mnemoscope.tasks import read_corpus as read_corpus
from mnemoscope.training.loop import fit as fit
from mnemoscope.training.loss import CrossEntropy as CrossEntropy
from mnemoscope.training.loss import LabelSmoothing as LabelSmoothing
from mnemoscope.training.loss import Loss as Loss
from mnemoscope.training.optimizers import SGD as SGD
from mnemoscope.training.optimizers import Adam as Adam
from mnemoscope.training.optimizers import Optimizer as Optimizer
from mnemoscope.training.run import Run as Run
from mnemoscope.training.schedules import Schedule as Schedule
from mnemoscope.training.spec import Spec as Spec

__version__: str
