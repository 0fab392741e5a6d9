// Channels nearby that several callers join at the same time.
import Nearby
import RelayProtocol
import Testing

@testable import pttd

@Suite struct NearbyEntriesTests {
    @Test func `a failed join takes nothing from another caller's join of the same channel`() {
        let channel = ChannelID()
        for ends in [[true, false], [false, true]] {
            var record = NearbyRecord()
            var entries = NearbyEntries()
            entries.begin(channel, in: &record)
            entries.begin(channel, in: &record)
            for isJoined in ends {
                entries.end(channel, isJoined: isJoined, in: &record)
                // The other one's link looks for it meanwhile.
                #expect(record.joined == ["\(channel)"])
            }
        }
    }

    @Test func `a failed join takes nothing from a join of another channel`() {
        let (refused, joined) = (ChannelID(), ChannelID())
        var record = NearbyRecord()
        var entries = NearbyEntries()
        entries.begin(refused, in: &record)
        entries.begin(joined, in: &record)
        entries.end(joined, isJoined: true, in: &record)
        entries.end(refused, isJoined: false, in: &record)
        #expect(record.joined == ["\(joined)"])
    }

    @Test func `a failed join leaves the record as it was`() {
        let old = (0..<NearbyRecord.joinedMaximum).map { _ in ChannelID() }
        var record = NearbyRecord()
        for channel in old { record.join(channel) }
        record.keep(BluetoothAccessPoint("00:11:22:33:44:55"), of: old[0])
        var entries = NearbyEntries()
        for channel in [old[0], ChannelID()] {
            entries.begin(channel, in: &record)
            #expect(record.joined.contains("\(channel)"))
            entries.end(channel, isJoined: false, in: &record)
            #expect(record.joined == old.map { "\($0)" })
            #expect(record.accessPoint(of: old[0]) != nil)
        }
    }

    @Test func `a channel that is joined is the newest, and the oldest is forgotten`() {
        var record = NearbyRecord()
        var entries = NearbyEntries()
        let channels = (0...NearbyRecord.joinedMaximum).map { _ in ChannelID() }
        for channel in channels {
            entries.begin(channel, in: &record)
            entries.end(channel, isJoined: true, in: &record)
        }
        #expect(record.joined == channels.dropFirst().map { "\($0)" })
    }
}
