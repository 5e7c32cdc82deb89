"""What a device's processes say to each other, and to XLA's client in a program.

    wire         what front and executor say to each other
    packing      arrays in a payload
    dtypes       types of elements
    errors       errors, as clients get them
    marks        how a worker says to what its requests belong
    protocol     XLA's messages, as the installed jaxlib speaks them
    descriptors  finds their descriptions in jaxlib
    kept         keeps them in the user's cache folder

May call: nothing else of the device. JAX is never imported.
"""
