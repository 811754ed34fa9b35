"""Replaces personal data by <email>, <phone>, <card>, <iban> and <id>.

Check digits are verified: cards (Luhn), IBANs (modulo 97), Chinese resident numbers (modulo 11, and a date of birth).
Phone numbers have no check digit; they must begin with a plus, a bracket or a zero, or have the American or Chinese
form. Names of people are not masked.
"""

import re
from collections.abc import Callable
from datetime import date

import regex

from weft.words import CHARACTER

_ASCII_HOST = (
    r"(?:[A-Za-z0-9-]{1,63}\.){1,8}(?:xn--[A-Za-z0-9-]{2,59}|[A-Za-z]{2,24}+(?!(?!" + CHARACTER + r")[\p{L}\p{M}]))"
)
# Domains in other scripts. Chinese has no space after a domain, so its top-level domains are listed.
_CHINESE_TOP = "中国|中國|公司|网络|網絡|香港|台湾|台灣|新加坡|在线|中文网|网址|集团|コム|みんな"
_TOP = rf"(?:{_CHINESE_TOP}|(?:(?!{CHARACTER})[\p{{L}}\p{{M}}]){{2,24}})"
_HOST = rf"(?:[\p{{L}}\p{{M}}\p{{N}}-]{{1,63}}\.){{1,8}}(?:xn--[A-Za-z0-9-]{{2,59}}|{_TOP})"
# A Latin local part after Chinese text begins with the first Latin letter; a Chinese one takes the whole run.
_LOCAL = rf"(?:(?:(?!{CHARACTER})[\p{{L}}\p{{M}}\p{{N}}._%+-]){{1,64}}|[\p{{L}}\p{{M}}\p{{N}}._%+-]{{0,63}}{CHARACTER})"
_EMAIL = regex.compile(rf"{_LOCAL}@(?:{_ASCII_HOST}|{_HOST})")
_CARD = re.compile(
    r"(?<![0-9A-Za-z])(?:[2-6]\d{3}([ -]?)\d{4}\1\d{4}\1\d{1,7}|3[47]\d{2}([ -]?)\d{6}\2\d{5})(?![0-9A-Za-z])"
)
# Begins with a plus, a bracket or a zero, or has the American form.
_PHONE = re.compile(
    r"(?<![0-9A-Za-z.,+(])(?:(?:\+\d{1,3}[ .-]?(?:\(0\)[ .-]?)?|\(0?\d{2,4}\)[ .-]?|0\d{1,4}[ ./-])\d[\d ./-]{4,14}\d"
    r"|\d{3}[-.]\d{3}[-.]\d{4})(?![0-9A-Za-z])"
)
_DATE = re.compile(r"\d{1,2}[-./ ]\d{1,2}[-./ ]\d{4}")
# The prefixes of the networks; not an amount of money, a count or a round number.
_CHINESE_MOBILE = re.compile(
    r"(?<![0-9A-Za-z.,$¥￥€£-])(?:(?:\+|00)?86[ -]?)?"
    r"(?:13\d|14[0145-9]|15[0-35-9]|16[2567]|17[0-8]|18\d|19[0-35-9])([ -]?)\d{4}\1(?!0{4})\d{4}"
    r"(?![0-9A-Za-z]|[.,-]\d| ?[元万亿人次个%％])"
)
_RESIDENT = re.compile(r"(?<![0-9A-Za-z])[1-8]\d{5}(?:19|20)\d{9}[\dXx](?![0-9A-Za-z])")
_RESIDENT_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_IBAN = re.compile(r"(?<![0-9A-Za-z])([A-Z]{2})\d\d(?: ?[A-Z0-9]){11,30}")
_IBANS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 EE20 EG29 ES24 "
    "FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 "
    "LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22 "
    "SA24 SC31 SE24 SI19 SK24 SM27 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 "
)
_IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBANS.split()}


def mask(text: str) -> str:
    text = _IBAN.sub(_mask_iban, _EMAIL.sub("<email>", text) if "@" in text else text)
    text = _RESIDENT.sub(_checked("<id>", _is_resident), text)
    text = _CARD.sub(_checked("<card>", lambda found: _passes_luhn(re.sub(r"\D", "", found))), text)
    return _PHONE.sub(_checked("<phone>", _is_phone), _CHINESE_MOBILE.sub("<phone>", text))


def _checked(name: str, check: Callable[[str], bool]) -> Callable[[re.Match[str]], str]:
    return lambda found: name if check(found[0]) else found[0]


def _is_phone(found: str) -> bool:
    return 7 <= len(re.sub(r"\D", "", found)) <= 15 and _DATE.match(found) is None


def _passes_luhn(digits: str) -> bool:
    """The checksum of card numbers (ISO/IEC 7812): double every second digit from the right, add all digits."""
    doubled = [sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2]]
    return (sum(doubled) + sum(map(int, digits[-1::-2]))) % 10 == 0


def _is_resident(number: str) -> bool:
    """GB 11643: region, date of birth, serial number and check digit (ISO 7064, modulo 11)."""
    try:
        date(int(number[6:10]), int(number[10:12]), int(number[12:14]))
    except ValueError:
        return False
    total = sum(weight * int(digit) for weight, digit in zip(_RESIDENT_WEIGHTS, number, strict=False))
    return "10X98765432"[total % 11] == number[-1].upper()


def _mask_iban(found: re.Match[str]) -> str:
    """Masks as many characters as the country's IBANs have (ISO 13616); the text after them stays."""
    places = [place for place, character in enumerate(found[0]) if character != " "]
    length = _IBAN_LENGTHS.get(found[1], 0)
    if not 0 < length <= len(places):
        return found[0]
    end = places[length - 1] + 1
    if found[0][end : end + 1].strip() or (
        end == len(found[0]) and found.string[found.end() : found.end() + 1].isalnum()
    ):
        return found[0]
    plain = found[0][:end].replace(" ", "")
    number = "".join(str(int(character, 36)) for character in plain[4:] + plain[:4])
    return "<iban>" + found[0][end:] if int(number) % 97 == 1 else found[0]
