"""ex10: read what a machine says, and name the cause and the remedy.

`grader check ex10` judges `diagnose` on reports that are not shown here, but for those
you get wrong; `grader hint ex10` helps. Reports look like what `grader doctor` prints, or
like a terminal: what `pip list` shows, a command, and what it printed.
"""

import re

CAUSES = {
    "gpu in use": "JAX runs on the GPU",
    "no gpu": "a machine without a GPU, and a JAX without a CUDA plugin",
    "no plugin": "there is a GPU, but no CUDA plugin is installed",
    "plugin of another version": "plugin and jaxlib differ, so parts of the plugin stay unused",
    "jaxlib of another version": "jax and jaxlib do not fit each other",
    "two plugins": "the plugins of CUDA 12 and of CUDA 13 are both installed",
    "library missing": "a CUDA library that the plugin needs cannot be loaded",
    "foreign library": "LD_LIBRARY_PATH brings CUDA libraries that do not fit",
    "no driver": "the driver's own library, libcuda, cannot be loaded",
    "gpu hidden": "the driver works, and CUDA_VISIBLE_DEVICES leaves no GPU to see",
    "no device node": "plugin installed, but no /dev/nvidia*: a container without the GPU",
    "JAX_PLATFORMS is gpu": "which asks for cuda, rocm and oneapi at once",
    "JAX_PLATFORMS is misspelt": "it names a backend that nobody knows",
    "JAX_PLATFORMS is cpu": "the plugin is installed, and told to stay away",
    "XLA_FLAGS is misspelt": "it holds a flag that XLA does not know",
}
REMEDIES = (
    "install jax and jaxlib of one version",
    "install plugin and jaxlib of one version",
    "install the driver",
    "install the plugin",
    "install the plugin's CUDA libraries",
    "leave it",
    "mend CUDA_VISIBLE_DEVICES",
    "mend XLA_FLAGS",
    "run on a machine with a GPU",
    "start the container with the GPU",
    "uninstall one plugin",
    "unset JAX_PLATFORMS",
    "unset LD_LIBRARY_PATH",
    "write JAX_PLATFORMS=cuda",
    "write names in lower case, without spaces",
)


def diagnose(report):
    """The cause and the one change that mends it: a key of CAUSES and one of REMEDIES.

    `report` is a text of several lines, in no fixed order.
    """
    return Reader(report).answer()


class Reader:
    """Asks a report one question after the other."""

    aloud = {
        "Unknown flag in XLA_FLAGS": 14,
        "requires version": 4,
        "is newer than and incompatible": 4,
        "so it will not be used": 3,
        "PJRT_Api already exists": 5,
        "CUDA error 303": 8,
        "UNKNOWN ERROR (303)": 8,
        "CUDA_ERROR_NO_DEVICE": 9,
        "Unable to load cu": 6,
        "Backend 'rocm' is not": 11,
    }
    remedies = (
        "leave it|run on a machine with a GPU|install the plugin|"
        "install plugin and jaxlib of one version|install jax and jaxlib of one version|"
        "uninstall one plugin|install the plugin's CUDA libraries|unset LD_LIBRARY_PATH|"
        "install the driver|mend CUDA_VISIBLE_DEVICES|start the container with the GPU|"
        "write JAX_PLATFORMS=cuda|write names in lower case, without spaces|"
        "unset JAX_PLATFORMS|mend XLA_FLAGS"
    ).split("|")

    def __init__(self, report):
        self.report = report
        self.plugin = "-plugin" in report

    def answer(self):
        number = self.number()
        return [list(CAUSES)[number], self.remedies[number]]

    def number(self):
        for sign, number in self.aloud.items():
            if sign in self.report:
                return number + (number == 6 and "LD_LIBRARY_PATH" in self.report)
        if re.search("Backend '(?!cuda')", self.report):
            return 12
        if re.search(r"\bgpu: \d", self.report):
            return 0
        if not self.plugin:
            return 2 if re.search("Backend 'cuda'|GPU may be", self.report) else 1
        return 13 if re.search("PLATFORMS='?cpu", self.report) else 10
