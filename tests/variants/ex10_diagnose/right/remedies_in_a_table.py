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
    remedies = {
        "gpu in use": "leave it",
        "no gpu": "run on a machine with a GPU",
        "no plugin": "install the plugin",
        "plugin of another version": "install plugin and jaxlib of one version",
        "jaxlib of another version": "install jax and jaxlib of one version",
        "two plugins": "uninstall one plugin",
        "library missing": "install the plugin's CUDA libraries",
        "foreign library": "unset LD_LIBRARY_PATH",
        "no driver": "install the driver",
        "gpu hidden": "mend CUDA_VISIBLE_DEVICES",
        "no device node": "start the container with the GPU",
        "JAX_PLATFORMS is gpu": "write JAX_PLATFORMS=cuda",
        "JAX_PLATFORMS is misspelt": "write names in lower case, without spaces",
        "JAX_PLATFORMS is cpu": "unset JAX_PLATFORMS",
        "XLA_FLAGS is misspelt": "mend XLA_FLAGS",
    }
    cause = find(report)
    return cause, remedies[cause]



def find(report):
    unknown = re.search("Backend '(.*?)' is not in the list", report)
    if "Unknown flag" in report:
        return "XLA_FLAGS is misspelt"
    if "will not be used" in report:
        return "plugin of another version"
    if "jaxlib is version" in report or "jaxlib version" in report:
        return "jaxlib of another version"
    if "already exists" in report:
        return "two plugins"
    if "cuInit" in report:
        return "no driver" if re.search(r"\b303\b", report.partition("cuInit")[2]) else "gpu hidden"
    if "Is it installed?" in report:
        return "foreign library" if "LD_LIBRARY_PATH" in report else "library missing"
    if unknown and unknown[1] == "rocm":
        return "JAX_PLATFORMS is gpu"
    if unknown and unknown[1] != "cuda":
        return "JAX_PLATFORMS is misspelt"
    if unknown or ("Falling back" in report and "-plugin" not in report):
        return "no plugin"
    if " gpu: " in report:
        return "gpu in use"
    if "-plugin" not in report:
        return "no gpu"
    told = re.search("JAX_PLATFORMS=['a-z,]*", report)
    return "JAX_PLATFORMS is cpu" if told and "cuda" not in told[0] else "no device node"
