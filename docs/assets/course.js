// Material's search dialog has no name that a screen reader could say.
document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
