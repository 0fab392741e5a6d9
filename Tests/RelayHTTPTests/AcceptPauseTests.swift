// What a listener does when a connection waits and cannot be taken.
import Glibc
import Testing

@testable import RelayHTTP

@Suite struct AcceptPauseTests {
    @Test(arguments: [EMFILE, ENFILE, ENOBUFS, ENOMEM])
    func `a shortage is waited out, and told once until somebody gets in`(code: Int32) {
        var pause = AcceptPause()
        for _ in 0..<2 {
            #expect(pause.failed(code) == .pause(tells: true))
            #expect(pause.failed(code) == .pause(tells: false))
            #expect(pause.failed(ECONNABORTED) == .goOn)
            #expect(pause.failed(EMFILE) == .pause(tells: false))
            pause.accepted()
        }
    }

    @Test(arguments: [EAGAIN, ECONNABORTED, EINTR, EPERM])
    func `what is the matter of one connection is not waited for`(code: Int32) {
        var pause = AcceptPause()
        #expect(pause.failed(code) == .goOn)
        #expect(pause.failed(EMFILE) == .pause(tells: true))
    }
}
