import PTTBus
import Testing

@testable import pttd

@Suite struct CallHoldersTests {
    private func lock(_ who: String, _ why: String = "", process: UInt32 = 7) -> Inhibitor {
        Inhibitor(what: "call", who: who, why: why, processID: process)
    }

    @Test func aLockIsAHolderUntilItIsGone() {
        var holders = CallHolders()
        let came = holders.update([lock("Linphone", "a call")])
        #expect(came.map(\.description) == ["Linphone: a call"])
        #expect(holders.update([lock("Linphone", "a call")]).isEmpty)
        let gone = holders.update([Inhibitor]())
        #expect(gone == came.map { CallHolders.Change(holder: $0.holder, description: nil) })
    }

    @Test func twoLocksOfOneProgramAreTwoCalls() {
        var holders = CallHolders()
        let came = holders.update([lock("A"), lock("A")])
        #expect(Set(came.map(\.holder)).count == 2)
        let gone = holders.update([lock("A")])
        #expect(gone.count == 1)
        #expect(gone.first?.description == nil)
    }

    @Test func theNextCallCountsBeforeTheLastOneEnds() {
        var holders = CallHolders()
        _ = holders.update([lock("A")])
        let changes = holders.update([lock("B")])
        #expect(changes.map { $0.description == nil } == [false, true])
    }
}
