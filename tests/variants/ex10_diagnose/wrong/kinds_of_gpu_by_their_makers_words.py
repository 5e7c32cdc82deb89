# expect: sound_machines
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
    # Most lines are consequences: "No visible GPU devices", "Falling back to cpu". Texts that
    # only one fault prints come first. A text that two faults print comes after them.
    signs = (
        ("Unknown flags? in XLA_FLAGS", "XLA_FLAGS is misspelt", "mend XLA_FLAGS"),
        (
            "jaxlib (is )?version .* (requires|incompatible with)",
            "jaxlib of another version",
            "install jax and jaxlib of one version",
        ),
        (
            "not compatible with the installed jaxlib",
            "plugin of another version",
            "install plugin and jaxlib of one version",
        ),
        ("PJRT_Api already exists", "two plugins", "uninstall one plugin"),
        # cuInit is the driver's first function. 303: there is no driver to call.
        ("cuInit.* (error 303|UNKNOWN ERROR .303)", "no driver", "install the driver"),
        # Here the driver answered, and sees no device.
        ("cuInit.* CUDA_ERROR_NO_DEVICE", "gpu hidden", "mend CUDA_VISIBLE_DEVICES"),
        # One text, two faults: a library is missing, or another one is found before it.
        (
            "(?s)LD_LIBRARY_PATH=.*Unable to load cu|Unable to load cu.*LD_LIBRARY_PATH=",
            "foreign library",
            "unset LD_LIBRARY_PATH",
        ),
        ("Unable to load cu", "library missing", "install the plugin's CUDA libraries"),
        ("Backend 'rocm' is not", "JAX_PLATFORMS is gpu", "write JAX_PLATFORMS=cuda"),
        # 'cuda' is spelt right: it is unknown where its plugin is missing or has failed.
        (
            "Backend '(?!cuda').*' is not in the list",
            "JAX_PLATFORMS is misspelt",
            "write names in lower case, without spaces",
        ),
    )
    for sign, cause, remedy in signs:
        if re.search(sign, report):
            return cause, remedy
    # No text is left: the machine is sound, or failed in silence. Packages and variables decide.
    if re.search(r"(?m)^(backend|devices) +gpu: \d+ x (NVIDIA|Tesla|Quadro) ", report):
        return "gpu in use", "leave it"
    if not re.search("jax-cuda..-plugin", report):
        if re.search("NVIDIA GPU may be present|Backend 'cuda' is not", report):
            return "no plugin", "install the plugin"
        return "no gpu", "run on a machine with a GPU"
    if re.search("JAX_PLATFORMS='?cpu", report):
        return "JAX_PLATFORMS is cpu", "unset JAX_PLATFORMS"
    # JAX looks for a device node before it starts a plugin, and is silent if there is none.
    return "no device node", "start the container with the GPU"
