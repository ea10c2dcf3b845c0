import os, time, pytest, threading, sys, resource
D="/tmp/cpu_times"
def cpu():
    t=os.times(); return t.user+t.system+t.children_user+t.children_system
def own():
    t=os.times(); return t.user+t.system
def log(c,w,i,kid=0.0):
    with open(f"{D}/{os.getpid()}.txt","a") as f: f.write(f"{c:.3f}\t{w:.3f}\t{i}\n")
    if kid>0.05:
        with open(f"{D}/{os.getpid()}.kids","a") as f: f.write(f"{kid:.3f}\t{i}\n")
def pytest_configure(config): log(cpu(),0,"CONFIGURE")
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    a=cpu(); w=time.time(); o=own()
    yield
    c=cpu()-a
    log(c,time.time()-w,item.nodeid,c-(own()-o))
@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef, request):
    a=cpu()
    yield
    c=cpu()-a
    if c>0.1:
        with open(f"{D}/{os.getpid()}.fix","a") as f: f.write(f"{c:.3f}\t{fixturedef.scope}\t{fixturedef.argname}\t{request.node.nodeid}\n")
def pytest_collection_finish(session): log(cpu(),0,"COLLECT(total so far)")
@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    log(cpu(),0,"END(total)"); 
