// Which channel nearby a press joins.
import Cryptography
import FoundationEssentials
import Nearby
import RelayProtocol
import Testing

@testable import pttd

@Suite struct NearbyTurnTests {
    private func channel(
        _ number: UInt8, _ admission: NearbyAnnouncement.Admission = .open, isOwn: Bool = false
    ) -> NearbyChannel {
        NearbyChannel(
            announcement: NearbyAnnouncement(
                channel: ChannelID(), name: DisplayName("Crane \(number)")!, creator: DisplayName("Ann")!,
                pin: PublicKeyPin(subjectPublicKeyInfo: [number]), members: 1, admission: admission, host: HostID()),
            places: [], isOwn: isOwn)
    }

    @Test func eachPressJoinsTheNextOneAndTheFirstOneAfterTheLast() {
        let channels = [channel(1), channel(2), channel(3)]
        let ids = channels.map(\.announcement.channel.uuid)
        #expect(NearbyTurn.next(after: nil, among: channels) == channels[0])
        #expect(NearbyTurn.next(after: UUID(), among: channels) == channels[0], "from a channel of another relay")
        #expect(NearbyTurn.next(after: ids[0], among: channels) == channels[1])
        #expect(NearbyTurn.next(after: ids[2], among: channels) == channels[0])
    }

    @Test func whereThereIsNoOtherNothingIsJoined() {
        let only = channel(1)
        #expect(NearbyTurn.next(after: nil, among: []) == nil)
        #expect(NearbyTurn.next(after: only.announcement.channel.uuid, among: [only]) == nil)
    }

    @Test func aPressSaysNoCode() {
        let (open, locked, asks) = (channel(1), channel(2, .code), channel(3, .ask))
        #expect(NearbyTurn.next(after: open.announcement.channel.uuid, among: [open, locked, asks]) == nil)
        let own = channel(4, .code, isOwn: true)
        #expect(NearbyTurn.next(after: open.announcement.channel.uuid, among: [open, locked, own]) == own)
    }
}
