// What Avahi's signals mean, and that nothing else is taken for one.
import DBus
import RelayProtocol
import TestSupport
import Testing

@testable import Nearby

@Suite struct DialectTests {
    private static let item: [DBusValue] = [
        .int32(2), .int32(1), .string("Crane 2"), .string("_pttd._udp"), .string("local"), .uint32(4),
    ]
    private static let found: [DBusValue] = [
        .int32(2), .int32(1), .string("Crane 2"), .string("_pttd._udp"), .string("local"), .string("crane.local"),
        .int32(1), .string("fe80::1"), .uint16(5_000), .array(.array(.byte), [.bytes([1, 2]), .bytes([])]), .uint32(4),
    ]
    private static let group = "org.freedesktop.Avahi.EntryGroup"
    private static let browser = "org.freedesktop.Avahi.ServiceBrowser"
    private static let resolver = "org.freedesktop.Avahi.ServiceResolver"

    private func signal(_ interface: String, _ member: String, _ arguments: [DBusValue]) -> AvahiSignal? {
        AvahiSignal(interface: interface, member: member, arguments: arguments) { $0 == 2 ? "eth0" : nil }
    }

    @Test func `signals are read`() throws {
        let service = makeService("Crane 2", six: true)
        #expect(signal(Self.browser, "ItemNew", Self.item) == .appeared(service))
        #expect(signal(Self.browser, "ItemRemove", Self.item) == .disappeared(service))
        #expect(signal(Self.browser, "AllForNow", []) == .toldAll)
        #expect(signal(Self.browser, "Failure", [.string("a\nb")]) == .failed("ab"))
        #expect(signal(Self.resolver, "Failure", [.string("")]) == .failed("no reason given"))
        #expect(signal(Self.group, "StateChanged", [.int32(2), .string("x")]) == .group(.established, reason: "x"))
        let place = try #require(makePlace("fe80::1"))
        #expect(signal(Self.resolver, "Found", Self.found) == .found(service, place, txt: [[1, 2], []]))
        #expect(place.kind == .linkLocal && place.place.host == "fe80::1%eth0")
    }

    @Test func `other signals are not taken`() {
        #expect(signal(Self.browser, "CacheExhausted", []) == nil)
        #expect(signal(Self.group, "ItemNew", Self.item) == nil)
        #expect(signal(Self.group, "StateChanged", [.int32(7), .string("")]) == nil)
        #expect(signal(Self.group, "StateChanged", [.uint32(2), .string("")]) == nil)
        #expect(signal(Self.group, "StateChanged", [.int32(2)]) == nil)
        let long = String(repeating: "x", count: 64)
        let wrong: [(Int, DBusValue)] = [
            (0, .int32(-1)), (0, .uint32(2)), (1, .int32(-1)), (1, .int32(2)), (2, .string("")), (2, .string(long)),
            (2, .bytes([1])), (3, .string("_http._tcp")), (4, .string("")),
            (4, .string(String(repeating: "x", count: 1_015))),
        ]
        for (index, value) in wrong {
            var item = Self.item
            item[index] = value
            #expect(signal(Self.browser, "ItemNew", item) == nil)
            var found = Self.found
            found[index] = value
            #expect(signal(Self.resolver, "Found", found) == nil)
        }
        let alsoWrong: [(Int, DBusValue)] = [
            (5, .int32(1)), (6, .string("")), (7, .int32(1)), (8, .int32(5_000)), (9, .string("")), (9, .bytes([1])),
            (9, .array(.string, [.string("v=1")])), (10, .int32(0)),
        ]
        for (index, value) in alsoWrong {
            var found = Self.found
            found[index] = value
            #expect(signal(Self.resolver, "Found", found) == nil)
        }
        for count in 0..<Self.found.count {
            #expect(signal(Self.resolver, "Found", Array(Self.found.prefix(count))) == nil)
        }
        var empty = Self.found
        empty[9] = .array(.array(.byte), [])
        #expect(signal(Self.resolver, "Found", empty) != nil)
    }

    @Test func `only addresses of one machine are places`() {
        let wrong = [
            "", "x", "0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.251", "239.1.1.1", "255.255.255.255", "::", "::1",
            "::ffff:10.0.0.1", "::10.0.0.1", "ff02::fb", "10.0.0.1\0", "10.0.0.1 ", "10.1", "fe80::1%eth0",
            "host.local",
            "[fe80::1]", String(repeating: "1", count: 100),
        ]
        for address in wrong { #expect(makePlace(address) == nil, "\(address)") }
        #expect(makePlace("10.0.0.1", port: 0) == nil)
        #expect(makePlace("10.0.0.1")?.kind == .ipv4)
        #expect(makePlace("169.254.1.1")?.kind == .ipv4)
        #expect(makePlace("fd00::1")?.kind == .ipv6)
        #expect(makePlace("febf::1")?.kind == .linkLocal)
        // One address has one text.
        #expect(makePlace("2001:DB8:0:0::0001") == makePlace("2001:db8::1"))
        // A link-local address without its interface leads nowhere, and one with a strange interface too.
        #expect(NearbyPlace(address: "fe80::1", port: 1, zone: nil) == nil)
        #expect(NearbyPlace(address: "fe80::1", port: 1, zone: "a b") == nil)
        var found = Self.found
        found[0] = .int32(3)
        #expect(signal(Self.resolver, "Found", found) == .foundNowhere(makeService("Crane 2", interface: 3, six: true)))
    }
}
