"""Where people keep what is nobody else's business: not there for any command.

The rest of a home can be read, since programs and their libraries may well lie there. A list can
never be whole; `hidden` of a task's sandbox adds to it.
"""

from collections.abc import Iterator
from pathlib import Path

_PLACES = """
.ssh .gnupg .netrc .password-store .pgpass .my.cnf .local/share/keyrings
.aws .azure .boto .s3cfg .kube .docker .terraform.d .config/gcloud .config/doctl .config/rclone
.git-credentials .config/git/credentials .config/gh .config/hub .config/op
.npmrc .pypirc .cargo/credentials .cargo/credentials.toml .gem/credentials .m2/settings.xml
.gradle/gradle.properties .cache/huggingface/token .huggingface
.anthropic .claude .claude.json .codex .gemini .config/openai
.mozilla .config/google-chrome .config/chromium
.bash_history .zsh_history .python_history
"""


def secrets(home: Path) -> Iterator[Path]:
    """The places below a home that are there: most are not, and each would take its time."""
    return (path for place in _PLACES.split() if (path := home / place).exists())
