import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.sources.web.addresses import NotFetched, checked_ips, is_named, is_open, parse, system_resolver

CLOSED = """
    0.0.0.0 10.1.2.3 100.64.0.1 100.100.100.200 127.0.0.1 127.9.9.9 168.63.129.16 169.254.169.254 172.16.0.1
    172.31.255.255 192.0.0.8 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 203.0.113.9 224.0.0.1 239.255.255.255
    240.0.0.1 255.255.255.255 :: ::1 ::ffff:8.8.8.8 ::ffff:127.0.0.1 ::8.8.8.8 64:ff9b::7f00:1
    64:ff9b::a9fe:a9fe 64:ff9b::a00:1 64:ff9b:1::808:808 100::1 2001::1 2001:db8::1 2002:7f00:1:: 2002:808:808::
    3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 2606:4700::1%eth0 fec0::1 ff02::1 localhost 127.1
    1
"""
OPEN = "1.1.1.1 8.8.8.8 100.63.255.255 172.32.0.1 2606:4700:4700::1111 2a00:1450::1 64:ff9b::808:808"


@pytest.mark.parametrize("ip", CLOSED.split())
def test_addresses_that_are_not_public_are_refused(ip):
    assert not is_open(ip)


@pytest.mark.parametrize("ip", OPEN.split())
def test_public_addresses_are_open(ip):
    assert is_open(ip)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_addresses_that_ipaddress_calls_special_are_never_open(ip):
    special = ip.is_private or ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified
    nat64 = ip.version == 6 and ip in ipaddress.IPv6Network("64:ff9b::/96")
    if special or not ip.is_global or (ip.is_reserved and not nat64):
        assert not is_open(str(ip))


@given(st.ip_addresses(v=4))
def test_a_nat64_address_is_as_open_as_its_ipv4_address(ip):
    embedded = ipaddress.IPv6Address(int(ipaddress.IPv6Address("64:ff9b::")) + int(ip))
    assert is_open(str(embedded)) == is_open(str(ip))


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://example.org/",
        "//example.org/",
        "http:///path",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.0.1.0/",
        "http://1.1.1.256/",
        "http://user@example.org/",
        "http://example.org:80@127.0.0.1/",
        "http://example.org\\@127.0.0.1/",
        "http://example.org%2f@127.0.0.1/",
        "http://127.0.0.1%00.example.org/",
        "http://exam ple.org/",
        "http://exam\x00ple.org/",
        "http://[fe80::1%25eth0]/",
        "http://[::1",
        "http://example.org:99999/",
        "http://example.org:x/",
        "http://a..b/",
        "http://" + "a" * 64 + ".org/",
        "http://example.org/" + "a" * 10_000,
    ],
)
def test_malformed_and_misleading_urls_are_refused(url):
    with pytest.raises(NotFetched) as failure:
        checked_ips(parse(url), inside=False, resolve=lambda _: ["8.8.8.8"], policy=is_open)
    assert failure.value.kind == "address refused"


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("HTTP://Example.ORG", "http://example.org/"),
        ("https://example.org:443/a?b#c", "https://example.org/a?b"),
        ("http://example.org.:8080/狐 狸?q=é", "http://example.org:8080/%E7%8B%90%20%E7%8B%B8?q=%C3%A9"),
        ("http://①②⑦.⓪.⓪.①/", "http://127.0.0.1/"),
        ("http://127。0。0。1/", "http://127.0.0.1/"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://[2606:4700:0:0::1]:8080/", "http://[2606:4700::1]:8080/"),
    ],
)
def test_addresses_are_normalized(url, plain):
    assert parse(url).url == plain
    assert parse(plain).url == plain


@pytest.mark.parametrize("found", [["8.8.8.8", "10.0.0.1"], ["10.0.0.1", "8.8.8.8"], ["8.8.8.8", "fe80::1%lo"], []])
def test_one_closed_address_among_several_closes_the_host(found):
    with pytest.raises(NotFetched):
        checked_ips(parse("http://example.org/"), inside=False, resolve=lambda _: found, policy=is_open)


def test_a_name_that_cannot_be_resolved_is_refused():
    def fails(_):
        raise OSError("no answer")

    with pytest.raises(NotFetched, match="no answer"):
        checked_ips(parse("http://example.org/"), inside=False, resolve=fails, policy=is_open)
    with pytest.raises(OSError):
        system_resolver(5.0)("no-such-host.invalid")


def test_a_name_is_resolved_once_and_an_ip_address_never():
    asked = []

    def resolve(host):
        asked.append(host)
        return ["8.8.8.8"]

    assert checked_ips(parse("http://example.org/"), inside=False, resolve=resolve, policy=is_open) == ["8.8.8.8"]
    assert checked_ips(parse("http://1.1.1.1/"), inside=False, resolve=resolve, policy=is_open) == ["1.1.1.1"]
    assert asked == ["example.org"]


@pytest.mark.parametrize(
    ("port", "is_fine"), [(80, True), (443, True), (8080, True), (22, False), (25, False), (6000, False)]
)
def test_ports_of_other_services_are_closed(port, is_fine):
    address = parse(f"http://example.org:{port}/")
    try:
        checked_ips(address, inside=False, resolve=lambda _: ["8.8.8.8"], policy=is_open)
    except NotFetched:
        assert not is_fine
    else:
        assert is_fine


def test_a_host_named_inside_is_allowed_on_ports_80_and_443_only():
    assert is_named(parse("http://wiki.local/"), ["Wiki.local"])
    assert is_named(parse("https://wiki.local/"), ["wiki.local"])
    assert not is_named(parse("http://wiki.local:6379/"), ["wiki.local"])
    assert is_named(parse("http://[::1]:8000/"), ["[::1]:8000"])
    assert not is_named(parse("http://other.local/"), ["wiki.local"])
