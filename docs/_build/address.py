"""Where the course lives: everything that pages derive from the address of the repository.

Input: `repo_url` and `site_url` of mkdocs.yml, which come from the environment variables
`COURSE_REPOSITORY` and `COURSE_SITE`. Without an address, pages say how to start from an archive,
and link to no repository. Nothing is fetched here.

Marks that pages may hold: `{{ get the course }}` and `{{ install }}`.
"""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from mkdocs.config.defaults import MkDocsConfig

CLONE, INSTALL = "{{ get the course }}", "{{ install }}"
PAGES_BRANCH = "gh-pages"
"""The branch that holds the built site, with its notebooks: Colab opens them from there."""


class AddressError(Exception):
    """The address of the repository is none that pages can link to."""


@dataclass(frozen=True)
class Address:
    """The repository, or an empty text; without a slash at its end."""

    repository: str

    @property
    def name(self) -> str:
        """`owner/name`."""
        return urlsplit(self.repository).path.strip("/")

    @property
    def on_github(self) -> bool:
        return urlsplit(self.repository).hostname == "github.com"

    def site(self) -> str:
        """Where GitHub shows the pages of a repository; empty for other hosts."""
        owner, _, name = self.name.partition("/")
        if not self.on_github:
            return ""
        host = f"{owner.lower()}.github.io"
        return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"

    def colab(self, notebook: str) -> str:
        """Opens a notebook of the built site in Colab; empty where Colab cannot reach it."""
        if not self.on_github:
            return ""
        return (
            f"https://colab.research.google.com/github/{self.name}/blob/{PAGES_BRANCH}/{notebook}"
        )

    def fill(self, markdown: str) -> str:
        """A page with its marks replaced."""
        return markdown.replace(CLONE, self._get()).replace(INSTALL, self._install())

    def _get(self) -> str:
        if not self.repository:
            return (
                "Unpack the archive of the course, and run these in its folder, the one that holds "
                "the `Makefile`:\n\n```console"
            )
        folder = self.name.rpartition("/")[2]
        return f"```console\n$ git clone {self.repository}\n$ cd {folder}"

    def _install(self) -> str:
        if not self.repository:
            return "$ pip install -c constraints.txt .    # in the folder of the course"
        return f"$ pip install git+{self.repository}"


def checked(repository: str) -> Address:
    """The address as a setting gives it; an empty text is no address.

    Raises AddressError for another scheme than https, and for one that holds a password or token.
    """
    text = re.sub(r"(\.git)?/*$", "", repository)
    if not text:
        return Address("")
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or "/" not in parts.path.strip("/"):
        raise AddressError(f"COURSE_REPOSITORY: want https://HOST/OWNER/NAME, not {text}")
    if "@" in parts.netloc:
        raise AddressError("COURSE_REPOSITORY: take the password or token out of the address")
    return Address(text)


def configure(config: MkDocsConfig) -> Address:
    """Set what MkDocs derives from the address: site, edit links, the repository's name.

    Raises AddressError as `checked`.
    """
    found = checked(config.repo_url or "")
    config.repo_url = found.repository or None
    config.repo_name = found.name or None
    site = config.site_url or found.site()
    config.site_url = f"{site.rstrip('/')}/" if site else None
    config.edit_uri = "edit/main/docs/" if found.repository else None
    return found
